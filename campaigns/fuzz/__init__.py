"""What comes from outside, mutated at random: nothing may crash or hang."""
