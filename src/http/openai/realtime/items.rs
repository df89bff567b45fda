//! The items of a conversation, and the turns that they belong to. No item is stored: a turn is, and its items are its
//! words.

use colloquy_core::ids::TurnId;
use colloquy_memory::turn::{Turn, TurnStatus};
use colloquy_ports::llm::ChatRole;

use super::super::responses::id_with_prefix;
use serde::Serialize;

/// The most items that belong to turns. The oldest leave the list; their turns stand.
const MAX_TURN_ITEMS: usize = 2_000;
/// The most items that belong to no turn.
const MAX_LOOSE_ITEMS: usize = 64;

/// Who says an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemRole {
    /// A note about the scene.
    System,
    User,
    Assistant,
}

impl From<ItemRole> for ChatRole {
    fn from(role: ItemRole) -> Self {
        match role {
            ItemRole::System => Self::System,
            ItemRole::User => Self::User,
            ItemRole::Assistant => Self::Assistant,
        }
    }
}

impl ItemRole {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }

    /// The kind of the part that has the words.
    pub const fn part_kind(self) -> &'static str {
        match self {
            Self::System | Self::User => "input_text",
            Self::Assistant => "output_text",
        }
    }
}

/// What an item belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemPlace {
    /// No turn: a note, a line that waits for a response, or a reply of which nothing was heard.
    Loose,
    /// The response under way.
    Running,
    /// The turn with this number.
    Turn(u32),
}

/// An item of the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub id: String,
    pub role: ItemRole,
    pub text: String,
    pub status: ItemStatus,
    pub place: ItemPlace,
}

impl Item {
    /// A whole item that belongs to no turn.
    pub const fn loose(id: String, role: ItemRole, text: String) -> Self {
        Self {
            id,
            role,
            text,
            status: ItemStatus::Completed,
            place: ItemPlace::Loose,
        }
    }

    /// A reply without words yet.
    pub const fn begun(id: String) -> Self {
        let mut item = Self::loose(id, ItemRole::Assistant, String::new());
        item.status = ItemStatus::InProgress;
        item
    }

    /// True for a line that waits for a response.
    pub fn is_waiting_line(&self) -> bool {
        self.role == ItemRole::User && self.place == ItemPlace::Loose
    }

    /// The reply of a stored turn.
    pub fn reply_of(turn: &Turn) -> Self {
        Self {
            id: reply_id(turn.id),
            role: ItemRole::Assistant,
            text: turn.reply_text.clone(),
            status: status_of(turn),
            place: ItemPlace::Turn(turn.number),
        }
    }

    /// The player's line of a stored turn. `None`: the NPC spoke first.
    pub fn line_of(turn: &Turn) -> Option<Self> {
        (!turn.player_text.is_empty()).then(|| Self {
            id: line_id(turn.id),
            role: ItemRole::User,
            text: turn.player_text.clone(),
            status: ItemStatus::Completed,
            place: ItemPlace::Turn(turn.number),
        })
    }
}

/// The status of the reply of a turn.
pub const fn status_of(turn: &Turn) -> ItemStatus {
    match turn.status {
        TurnStatus::Completed => ItemStatus::Completed,
        TurnStatus::Interrupted | TurnStatus::Failed => ItemStatus::Incomplete,
    }
}

/// The id of the item with the reply of a turn.
pub fn reply_id(turn: TurnId) -> String {
    id_with_prefix("item", turn)
}

/// The id of the item with the player's line of a turn, if the client has given no other id.
fn line_id(turn: TurnId) -> String {
    id_with_prefix("line", turn)
}

/// The turn of an item by the item's id. `None`: the id is of another form.
pub fn turn_of_item(id: &str) -> Option<(TurnId, ItemRole)> {
    let (ulid, role) = match id.split_once('_')? {
        ("item", ulid) => (ulid, ItemRole::Assistant),
        ("line", ulid) => (ulid, ItemRole::User),
        _ => return None,
    };
    let turn = format!("{}_{ulid}", TurnId::PREFIX).parse().ok()?;
    Some((turn, role))
}

/// Why an item found no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaceError {
    /// The named item is unknown.
    UnknownPrevious,
    /// Words that are part of a turn follow the place.
    TurnsFollow,
    /// The id is taken.
    IdTaken,
    /// Too many items belong to no turn.
    Full,
}

/// The items of the conversation in their order.
#[derive(Debug, Default)]
pub struct Conversation {
    items: Vec<Item>,
    /// The last turn before the first of `items`, and the id of its reply.
    earlier: Option<(u32, String)>,
}

impl Conversation {
    /// The conversation of a session whose last turn is `last_turn`. Its earlier items are not listed.
    pub fn after(last_turn: Option<&Turn>) -> Self {
        Self {
            items: Vec::new(),
            earlier: last_turn.map(|turn| (turn.number, reply_id(turn.id))),
        }
    }

    /// True if the client has items, or the session had turns.
    pub fn is_begun(&self) -> bool {
        !self.items.is_empty() || self.earlier.is_some()
    }

    pub fn find(&self, id: &str) -> Option<&Item> {
        self.items.iter().find(|item| item.id == id)
    }

    pub fn find_mut(&mut self, id: &str) -> Option<&mut Item> {
        self.items.iter_mut().find(|item| item.id == id)
    }

    /// The reply of a turn.
    pub fn reply_of_turn(&mut self, number: u32) -> Option<&mut Item> {
        let is_reply = |item: &&mut Item| item.place == ItemPlace::Turn(number) && item.role == ItemRole::Assistant;
        self.items.iter_mut().rev().find(is_reply)
    }

    /// True if an item belongs to the turn.
    pub fn has_turn(&self, number: u32) -> bool {
        self.items.iter().any(|item| item.place == ItemPlace::Turn(number))
    }

    /// The items that belong to no turn, in their order.
    pub fn loose_items(&self) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(|item| item.place == ItemPlace::Loose)
    }

    /// The position after the last item that belongs to a turn.
    fn first_free(&self) -> usize {
        let last_bound = self.items.iter().rposition(|item| item.place != ItemPlace::Loose);
        last_bound.map_or(0, |index| index + 1)
    }

    /// The position for a new item after `previous`; `None`: at the end.
    ///
    /// # Errors
    /// The place is unknown, or turns follow.
    pub fn position_after(&self, previous: Option<&str>) -> Result<usize, PlaceError> {
        let position = match previous {
            None => self.items.len(),
            Some("root") => 0,
            Some(id) => match self.items.iter().position(|item| item.id == id) {
                Some(index) => index + 1,
                None if self.earlier.as_ref().is_some_and(|(_, earlier)| earlier == id) => 0,
                None => return Err(PlaceError::UnknownPrevious),
            },
        };
        let is_root = previous == Some("root") && self.earlier.is_some();
        if is_root || position < self.first_free() {
            return Err(PlaceError::TurnsFollow);
        }
        Ok(position)
    }

    /// Checks whether one more item with this id may be added.
    ///
    /// # Errors
    /// The id is taken, or too many items belong to no turn.
    pub fn check_new(&self, id: &str) -> Result<(), PlaceError> {
        if self.find(id).is_some() || self.earlier.as_ref().is_some_and(|(_, earlier)| earlier == id) {
            return Err(PlaceError::IdTaken);
        }
        if self.loose_items().count() >= MAX_LOOSE_ITEMS {
            return Err(PlaceError::Full);
        }
        Ok(())
    }

    /// Adds an item at a position of [`Self::position_after`].
    pub fn insert(&mut self, position: usize, item: Item) {
        self.items.insert(position.min(self.items.len()), item);
        self.forget_oldest();
    }

    pub fn push(&mut self, item: Item) {
        self.insert(usize::MAX, item);
    }

    /// Adds an item of an earlier turn before all others.
    pub fn push_first(&mut self, item: Item) {
        self.items.insert(0, item);
    }

    fn forget_oldest(&mut self) {
        while self.items.len() > MAX_TURN_ITEMS + MAX_LOOSE_ITEMS
            && let Some(index) = self.items.iter().position(|item| item.place != ItemPlace::Loose)
        {
            let oldest = self.items.remove(index);
            if let (ItemPlace::Turn(number), ItemRole::Assistant) = (oldest.place, oldest.role) {
                self.earlier = Some((number, oldest.id));
            }
        }
    }

    /// The id of the item before `id`.
    pub fn previous_of(&self, id: &str) -> Option<&str> {
        match self.items.iter().position(|item| item.id == id) {
            Some(index) if index > 0 => self.items.get(index - 1).map(|item| item.id.as_str()),
            _ => self.earlier.as_ref().map(|(_, id)| id.as_str()),
        }
    }

    /// The waiting lines before position `end`, joined as the player's line of a turn, with their ids.
    pub fn waiting_line_before(&self, end: usize) -> (String, Vec<String>) {
        let lines = self.items.iter().take(end).filter(|item| item.is_waiting_line());
        let (texts, ids): (Vec<&str>, Vec<String>) = lines.map(|item| (item.text.as_str(), item.id.clone())).unzip();
        (texts.join("\n\n"), ids)
    }

    /// Gives items another place.
    pub fn move_to(&mut self, ids: &[String], place: ItemPlace) {
        for item in self.items.iter_mut().filter(|item| ids.contains(&item.id)) {
            item.place = place;
        }
    }

    /// Removes an item. True if the conversation had the item.
    pub fn remove(&mut self, id: &str) -> bool {
        let count_before = self.items.len();
        self.items.retain(|item| item.id != id);
        self.items.len() < count_before
    }

    /// The player's lines of a turn wait again. Returns the id of its reply, whose place is then [`ItemPlace::Loose`].
    pub fn release_turn(&mut self, number: u32) -> Option<String> {
        let mut reply = None;
        for item in self
            .items
            .iter_mut()
            .filter(|item| item.place == ItemPlace::Turn(number))
        {
            item.place = ItemPlace::Loose;
            if item.role == ItemRole::Assistant {
                reply = Some(item.id.clone());
            }
        }
        reply
    }

    /// Removes the items of all turns after `head`, and returns their ids.
    pub fn remove_after(&mut self, head: u32) -> Vec<String> {
        let is_after = |item: &Item| matches!(item.place, ItemPlace::Turn(number) if number > head);
        let removed_ids = self
            .items
            .iter()
            .filter(|item| is_after(item))
            .map(|item| item.id.clone());
        let removed_ids = removed_ids.collect();
        self.items.retain(|item| !is_after(item));
        self.earlier.take_if(|(number, _)| *number > head);
        removed_ids
    }
}

/// Whether an item is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemStatus {
    InProgress,
    Completed,
    /// Somebody cut the reply.
    Incomplete,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn item(id: &str, role: ItemRole, place: ItemPlace) -> Item {
        Item {
            place,
            ..Item::loose(id.to_owned(), role, format!("text of {id}"))
        }
    }

    /// Turn 1, turn 2, a note and two waiting lines.
    fn talk() -> Conversation {
        let mut talk = Conversation::default();
        for number in [1, 2] {
            let place = ItemPlace::Turn(number);
            talk.push(item(&format!("l{number}"), ItemRole::User, place));
            talk.push(item(&format!("r{number}"), ItemRole::Assistant, place));
        }
        talk.push(item("n", ItemRole::System, ItemPlace::Loose));
        talk.push(item("w1", ItemRole::User, ItemPlace::Loose));
        talk.push(item("w2", ItemRole::User, ItemPlace::Loose));
        talk
    }

    #[test]
    fn new_items_stand_after_the_last_turn() {
        let talk = talk();
        assert_eq!(talk.position_after(None), Ok(7));
        assert_eq!(talk.position_after(Some("r2")), Ok(4));
        assert_eq!(talk.position_after(Some("w1")), Ok(6));
        assert_eq!(talk.position_after(Some("l2")), Err(PlaceError::TurnsFollow));
        assert_eq!(talk.position_after(Some("root")), Err(PlaceError::TurnsFollow));
        assert_eq!(talk.position_after(Some("x")), Err(PlaceError::UnknownPrevious));
        assert_eq!(Conversation::default().position_after(Some("root")), Ok(0));
    }

    #[test]
    fn waiting_lines_are_one_line() {
        let talk = talk();
        let (line, ids) = talk.waiting_line_before(usize::MAX);
        assert_eq!(line, "text of w1\n\ntext of w2");
        assert_eq!(ids, ["w1", "w2"]);
        assert_eq!(talk.waiting_line_before(6).1, ["w1"]);
    }

    #[test]
    fn turns_that_were_taken_back_leave_or_wait_again() {
        let mut talk = talk();
        assert_eq!(talk.remove_after(1), ["l2", "r2"]);
        assert_eq!(talk.previous_of("n"), Some("r1"));
        assert_eq!(talk.release_turn(1).as_deref(), Some("r1"));
        assert_eq!(talk.waiting_line_before(usize::MAX).1, ["l1", "w1", "w2"]);
        assert_eq!(talk.position_after(Some("root")), Ok(0));
    }

    #[test]
    fn ids_lead_back_to_turns() {
        let turn = TurnId::from_u128(77);
        assert_eq!(turn_of_item(&reply_id(turn)), Some((turn, ItemRole::Assistant)));
        assert_eq!(turn_of_item(&line_id(turn)), Some((turn, ItemRole::User)));
        assert_eq!(turn_of_item("item_1"), None);
        assert_eq!(turn_of_item("w1"), None);
    }

    #[test]
    fn list_of_items_is_bounded() {
        let mut talk = Conversation::default();
        for number in 1..=3_000 {
            talk.push(item(
                &format!("r{number}"),
                ItemRole::Assistant,
                ItemPlace::Turn(number),
            ));
        }
        assert_eq!(talk.items.len(), MAX_TURN_ITEMS + MAX_LOOSE_ITEMS);
        let first = talk.items.first().unwrap().id.clone();
        assert_eq!(talk.previous_of(&first), Some("r936"));
    }
}
