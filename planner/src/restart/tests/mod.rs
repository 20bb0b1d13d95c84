//! Tables of both sides, and the two together.

mod node;
mod plan;
mod queue;
mod sim;
mod world;
