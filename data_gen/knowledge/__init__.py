"""Knowledge: invented people (`people`, `nano`), what a model is taught about them and then asked (`injection`)."""
