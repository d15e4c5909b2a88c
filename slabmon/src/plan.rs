//! What to load and attach on this host, and what to leave off and why: facts in, plan out, no I/O.
