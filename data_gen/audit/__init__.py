"""Reading other people's published files: answers worked out again, labels that do not hold, shortcuts that pay."""
