"""What a recipe is made of; each stage is resumable and ends in a manifest."""
