"""Everything in a store held against everything else; findings."""
