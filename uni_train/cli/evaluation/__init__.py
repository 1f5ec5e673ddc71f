"""Commands of `uni_train eval`: compare, pool, rank and export evaluations, calibrate a judge, write questions out."""
