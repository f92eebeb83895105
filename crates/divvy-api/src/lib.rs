//! Wire types of Divvy's REST API and the client for it.
