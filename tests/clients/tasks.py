"""Tasks for the celery worker of the client tests."""

import os

import celery

app = celery.Celery("tasks", broker=os.environ["BROKER"], backend=os.environ["BROKER"])


@app.task
def add(a, b):
    return a + b


@app.task
def total(numbers):
    return sum(numbers)
