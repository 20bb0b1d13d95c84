mod random;
mod world;
