//! The cluster's registry: images built without Docker and pushed over plain HTTP, and a front that
//! misbehaves.

mod client;
mod front;
mod image;
mod layer;

pub use client::{Blob, Pushed, Registry};
pub use front::{Access, Fault, Front, Match, Rule};
pub use image::ImageSpec;
pub use layer::{Compression, FileSource, LayerSpec};
