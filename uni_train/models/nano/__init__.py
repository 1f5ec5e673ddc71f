"""nano: BAGEL's architecture at toy size, with a world, a vocabulary, a VAE and a checkpoint of its own."""
