"""Flow-GRPO and its kin: reinforcement of a model that draws by a flow. docs/flow_grpo.md is the map."""
