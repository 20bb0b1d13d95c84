//! The state, driven event by event.

mod adoption;
pub(crate) mod cluster;
mod handout;
mod saving;
mod secrets;
mod seeds;
mod sim;
mod world;
