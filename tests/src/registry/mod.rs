//! The cluster's registry: images built without Docker and pushed over plain HTTP.

mod client;
mod image;
mod layer;

pub use client::{Blob, Pushed, Registry};
pub use image::ImageSpec;
pub use layer::{Compression, FileSource, LayerSpec};
