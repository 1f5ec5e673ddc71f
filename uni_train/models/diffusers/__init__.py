"""Any image pipeline of diffusers, asked as its class says."""
