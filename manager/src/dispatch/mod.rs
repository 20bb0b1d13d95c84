//! The agents' side: one stream per node.
