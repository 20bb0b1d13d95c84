//! Decisions about ImagePullJobs.
