mod node;
mod plan;
mod queue;
mod sim;
mod world;
