"""Looking inside a model: what it knows, plans and draws, where its attention goes, what its states hold.

    questions      items of any task as a benchmark: what is asked, what a text says, what an image shows
    published      questions of published files
    links          know, plan, draw: which link breaks
    attention      where image tokens look while a model draws, and which words an image follows
    interventions  the thought dropped, repeated, shuffled, blanked or exchanged
    states         hidden states read through the language head, and linear probes
    knowledge      whom taught models know, and the words that their states are read for
    page           one page with all results
    analyses       one analysis from its keys to the page

The hooks themselves are in `uni_train.models.bagel.hooks`.
"""
