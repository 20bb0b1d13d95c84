//! The trust store: our own certificate authority.
