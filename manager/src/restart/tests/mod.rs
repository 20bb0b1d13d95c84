//! The controller's state against a played API server and played agents: what is ordered, written and told, event by event.

mod flow;
mod world;
