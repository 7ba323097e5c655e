"""The functions of jobs: settings, the outcomes of needed jobs and a place in, an outcome out."""
