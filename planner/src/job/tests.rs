mod conditions;
mod random;
mod rows;
mod window;
mod world;
mod writes;
