mod random;
mod window;
mod world;
mod writes;
