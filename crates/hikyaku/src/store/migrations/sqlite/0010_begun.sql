-- Which row of a lane may have taken effect without word of it: what a crash in the midst of an effect leaves.

ALTER TABLE lanes ADD COLUMN begun TEXT;                -- the delivery that was first when the lane was taken; NULL: it was finished
