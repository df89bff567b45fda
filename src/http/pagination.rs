//! Lists: `?limit=&after=` in, `{"items":[…],"next":…}` out.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{AppState, errors::Problem};
use colloquy_core::{ids::DialogueId, scope::TenantScope};
use colloquy_ports::{Page, PageRequest, StoreResult, ledger::dialogues::Dialogue};

/// Items of a list without a `limit`: a page for a person to read.
const DEFAULT_PAGE: u32 = 50;
/// Maximum number of items of a page.
pub const MAX_PAGE: u32 = 200;

/// The query of a list: the fields are filters, and the macro adds the page.
macro_rules! list_query {
    ($(#[$meta:meta])* pub struct $name:ident { $($filters:tt)* }) => {
        $(#[$meta])*
        #[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
        #[serde(deny_unknown_fields)]
        #[into_params(parameter_in = Query)]
        pub struct $name {
            $($filters)*
            /// 1–200; default 50.
            limit: Option<u32>,
            /// `next` of the previous page.
            after: Option<String>,
        }

        impl $name {
            /// Returns the page of a list with cursors of type `C`.
            ///
            /// # Errors
            /// A limit outside 1–200, or an invalid cursor.
            pub fn parse_page<C: std::str::FromStr>(
                &self,
            ) -> Result<colloquy_ports::PageRequest, $crate::errors::Problem> {
                $crate::pagination::parse_page::<C>(self.limit, self.after.clone())
            }
        }
    };
}
pub(crate) use list_query;

list_query! {
    /// The page of a list without filters.
    pub struct PageQuery {}
}

/// One page of a list.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Items<T> {
    pub items: Vec<T>,
    /// Pass as `after` for the next page; `null` on the last page.
    pub next: Option<String>,
}

impl<T> Items<T> {
    /// The only page of a short list.
    pub fn only_page(items: impl IntoIterator<Item = T>) -> Self {
        Self {
            items: items.into_iter().collect(),
            next: None,
        }
    }
    /// Converts the items of a page to the wire form.
    pub fn from_page<S>(page: Page<S>, wire: impl FnMut(S) -> T) -> Self {
        Self {
            items: page.items.into_iter().map(wire).collect(),
            next: page.next,
        }
    }
}

impl<T> From<Page<T>> for Items<T> {
    fn from(page: Page<T>) -> Self {
        Self {
            items: page.items,
            next: page.next,
        }
    }
}

/// Parses the requested page of a list with cursors of type `C`.
///
/// # Errors
/// A limit outside 1–200, or an invalid cursor.
pub fn parse_page<C: FromStr>(limit: Option<u32>, after: Option<String>) -> Result<PageRequest, Problem> {
    let limit = limit.unwrap_or(DEFAULT_PAGE);
    if !(1..=MAX_PAGE).contains(&limit) {
        return Err(Problem::invalid_field("limit", format!("must be 1 to {MAX_PAGE}")));
    }
    if after.as_deref().is_some_and(|cursor| cursor.parse::<C>().is_err()) {
        return Err(invalid_cursor());
    }
    Ok(PageRequest { limit, after })
}

/// Reads pages of a list until the list ends, or at least `enough` items are there.
///
/// # Errors
/// As of `read_page`.
pub async fn collect_pages<T>(
    enough: usize,
    read_page: impl AsyncFn(&PageRequest) -> StoreResult<Page<T>>,
) -> StoreResult<Vec<T>> {
    let mut request = PageRequest {
        limit: MAX_PAGE,
        after: None,
    };
    let mut items = Vec::new();
    while items.len() < enough {
        let page = read_page(&request).await?;
        items.extend(page.items);
        request.after = page.next;
        if request.after.is_none() {
            break;
        }
    }
    Ok(items)
}

/// The error for an `after` that is no cursor of the list.
pub fn invalid_cursor() -> Problem {
    Problem::invalid_field("after", "must be the `next` of the page before")
}

/// Checks the cursor of a list of dialogues. The list continues at the cursor's row, so the row must exist and be
/// accessible to the caller. An inaccessible row gets the same error as a missing row.
pub async fn check_dialogue_cursor(
    state: &AppState,
    scope: &TenantScope,
    page: &PageRequest,
    is_listed: impl Fn(&Dialogue) -> bool,
) -> Result<(), Problem> {
    let cursor = page
        .after
        .as_deref()
        .and_then(|cursor| cursor.parse::<DialogueId>().ok());
    if let Some(id) = cursor {
        let dialogue = state.services.ledger.dialogues.load_dialogue(scope, id).await?;
        if !dialogue.is_some_and(|dialogue| is_listed(&dialogue)) {
            return Err(invalid_cursor());
        }
    }
    Ok(())
}
