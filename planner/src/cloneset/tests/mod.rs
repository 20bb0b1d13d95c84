//! Tables by section of the rules, and properties. `docs/cloneset.md` says how many cases each has; [`counts`] keeps that true.

mod claims;
mod counts;
mod line;
mod numbers;
mod order;
mod predownload;
mod progress;
mod random;
mod restarts;
mod revisions;
mod scaling;
mod shrinking;
mod takeover;
mod updating;
mod upkeep;
mod waiting;
mod world;
