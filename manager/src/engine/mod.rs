//! The engine that turns what is wanted into orders.
