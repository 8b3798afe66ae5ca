"""[Kumar2011]: batch scheduling of elastic and of dedicated jobs."""
