-- The changes of a world's clock: a restored save and a PUT of a world fold them alone. Their JSON begins with the tag.
CREATE INDEX state_events_of_clock ON state_events (tenant, world)
    WHERE lifted_at IS NULL AND substr(change, 1, 15) = '{"change":"time';
