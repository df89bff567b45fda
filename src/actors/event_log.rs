//! event_log
