"""From files to learned tasks and back to rows: what the commands do, for programs too.

`founding` makes a store from settings and data, `worklist` learns the data sets that it does not
hold yet, `data_files` keeps how a task's files were read, `labelling` gives rows their labels.
"""
