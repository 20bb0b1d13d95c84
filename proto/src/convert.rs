//! Messages to planner types and back.
