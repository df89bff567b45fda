//! Lists: `?limit=&after=` in, `{"items":[…],"next":…}` out.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{AppState, errors::Problem};
use crate::ports::{Page, PageRequest};

/// Most items of one page.
pub const MAX_PAGE: u32 = 200;

/// Which page of a list that is chosen by nothing else.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// 1–200; default 50.
    pub limit: Option<u32>,
    /// The `next` of the page before.
    pub after: Option<String>,
}

/// One page of a list.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Items<T> {
    pub items: Vec<T>,
    /// Pass as `after` for the next page; `null` on the last.
    pub next: Option<String>,
}

impl<T> Items<T> {
    /// A page with its items in the wire form.
    pub fn from_page<S>(page: Page<S>, wire: impl FnMut(S) -> T) -> Self {
        Self {
            items: page.items.into_iter().map(wire).collect(),
            next: page.next,
        }
    }
}

/// The page a query asks for, of a list whose cursors are `C`s.
///
/// # Errors
/// A limit outside 1–200, or a cursor that was never given out.
pub fn parse_page<C: FromStr>(
    state: &AppState,
    limit: Option<u32>,
    after: Option<String>,
) -> Result<PageRequest, Problem> {
    let limit = limit.unwrap_or(state.settings.default_page);
    if !(1..=MAX_PAGE).contains(&limit) {
        return Err(Problem::invalid_field("limit", format!("must be 1 to {MAX_PAGE}")));
    }
    if after.as_deref().is_some_and(|cursor| cursor.parse::<C>().is_err()) {
        return Err(invalid_cursor());
    }
    Ok(PageRequest { limit, after })
}

/// The refusal of an `after` that no page ended with.
pub fn invalid_cursor() -> Problem {
    Problem::invalid_field("after", "must be the `next` of the page before")
}
