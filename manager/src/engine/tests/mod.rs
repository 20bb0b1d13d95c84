//! The state, driven event by event.

mod adoption;
mod handout;
mod saving;
mod secrets;
mod world;
