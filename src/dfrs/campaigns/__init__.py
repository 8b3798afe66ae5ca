"""Many runs, and the published tables that are made from them."""
