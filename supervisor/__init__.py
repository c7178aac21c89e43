"""Squall's agent of a host: starts, watches and ends the worker processes that Nimbus placed on it.

What will live here: the plan (assignment, what runs and heartbeats in, what to start and stop out), worker
processes and their adoption after a restart, code bundles, access to logs. So far it holds nothing but its
name: a local cluster runs its workers within its own process.
"""
