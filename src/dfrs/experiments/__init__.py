"""Many runs, and the published tables made from them."""
