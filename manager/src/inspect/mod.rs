//! What people may look at.
