-- Which rows of a lane a claim took: those from `begun` to this one. What came or waits beside them is nobody's yet.

ALTER TABLE lanes ADD COLUMN taken_to TEXT;             -- the last delivery taken; NULL: the lane is not leased
