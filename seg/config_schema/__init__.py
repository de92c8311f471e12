"""What a config may hold, worked out from the signatures of what it will build. Nothing is built here but what is light.

`sections` says what each top-level key is; `check.faults_in` walks a config along it.
"""
