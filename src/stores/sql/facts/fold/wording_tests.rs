#![allow(clippy::unwrap_used)]
use super::*;

#[test]
fn sentence_that_a_person_restores_has_a_past_and_holds_again() {
    let id = FactId::from_u128(1);
    let base = FoldedFact {
        content: "A".to_owned(),
        keywords: Vec::new(),
        importance: Importance::DEFAULT,
        pinned: false,
    };
    let edit = |at: i64, content: &str| ViewEditRow {
        edited_at: at,
        id: format!("edit{at}"),
        patch: ViewPatch {
            content: Some(content.to_owned()),
            ..ViewPatch::default()
        },
    };
    let fold = |edits: Vec<ViewEditRow>| {
        let material = FoldInput {
            id,
            cached_view: base.clone(),
            base: base.clone(),
            cached_invalid: None,
            cached_taken_out: None,
            expires_at: None,
            valid_at: 0,
            authored: true,
            standing: Vec::new(),
            edits,
            duplicates: Vec::new(),
            premises: Vec::new(),
            conclusions: Vec::new(),
            knowers: BTreeSet::new(),
        };
        let materials = HashMap::from([(id, material)]);
        let mut computed = ComputedViews::default();
        let view = compute_view(id, &materials, &mut computed, &mut HashSet::new());
        let content = view.unwrap().content;
        let wordings = computed.wordings.remove(&id).unwrap();
        let taken_out_at = taken_out_at(&materials[&id], None, &content, &wordings);
        let wordings = wordings.into_iter().map(|StoredWording(text, at)| (text, at));
        (content, wordings.collect::<Vec<_>>(), taken_out_at)
    };
    let (a, b) = (("A".to_owned(), 1), ("B".to_owned(), 2));
    assert_eq!(fold(vec![edit(1, "B")]), ("B".to_owned(), vec![a.clone()], Some(1)));
    let restored = fold(vec![edit(2, "A"), edit(1, "B")]);
    assert_eq!(restored, ("A".to_owned(), vec![a, b], Some(2)));
}
