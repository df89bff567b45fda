//! Pages of rows.

use std::borrow::Cow;

use super::{
    context::Engine,
    rows::{ReadRow, without_nul},
    statements::BoundQuery,
};
use colloquy_core::scope::TenantScope;
use colloquy_ports::{Page, PageRequest, StoreResult};

/// Returns the cursor of the page, if the page is not the first.
pub(super) fn page_cursor(page: &PageRequest) -> Option<Cow<'_, str>> {
    page.after.as_deref().map(without_nul)
}

/// Returns the page size, clamped to 1–200, plus one row that shows whether a next page exists.
pub(super) fn page_row_limit(page: &PageRequest) -> i64 {
    i64::from(page.limit.clamp(1, 200)) + 1
}

/// Removes the surplus row and sets the cursor of the next page.
pub(super) fn into_page<T>(mut items: Vec<T>, page: &PageRequest, cursor: impl Fn(&T) -> String) -> Page<T> {
    let limit = page.limit.clamp(1, 200) as usize;
    let next = if items.len() > limit {
        items.truncate(limit);
        items.last().map(cursor)
    } else {
        None
    };
    Page { items, next }
}

/// Reads a page with `query`. The caller has bound all parameters: the scope, [`page_cursor`] and
/// [`page_row_limit`] of the page.
pub(super) async fn fetch_page<T>(
    engine: &Engine,
    scope: &TenantScope,
    query: BoundQuery<'_>,
    page: &PageRequest,
    read_row: ReadRow<T>,
    cursor: fn(&T) -> String,
) -> StoreResult<Page<T>> {
    let items = engine.fetch_all(scope, query, read_row).await?;
    Ok(into_page(items, page, cursor))
}
