//! What may be told to whom: who hears a dialogue, the locks of content that some players may not hear, secrets of authored
//! content, and the words of private content.

pub mod audience;
pub mod locks;
pub mod private_terms;
pub mod secrecy;
