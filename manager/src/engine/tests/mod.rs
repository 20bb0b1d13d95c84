//! The state, driven event by event.

mod adoption;
pub(crate) mod cluster;
mod extras;
mod failover;
mod handout;
mod images;
mod rows;
mod saving;
mod secrets;
pub(crate) mod seeds;
mod sim;
pub(crate) mod world;
