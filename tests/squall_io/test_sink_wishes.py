"""Which Spark session is wanted, and when two cannot share one: told without what is secret."""

from __future__ import annotations

from squall_io.spark.session.wishes import Wish, wish_problem


def test_the_users_settings_come_after_ours_and_the_master_last() -> None:
    wish = Wish.of(
        "yarn", {"spark.master": "local", "spark.log.level": "INFO", "squall.unsafe.store": "true"}
    )
    assert wish.settings["spark.master"] == "yarn"
    assert wish.settings["spark.log.level"] == "INFO"
    assert "squall.unsafe.store" not in wish.settings
    assert "spark.driver.host" not in wish.settings
    assert Wish.of(None, {"spark.master": "local[3]"}).settings["spark.driver.host"] == "127.0.0.1"
    assert Wish.of(None, None).where == "local[*]"


def test_the_same_wish_is_no_problem_and_squalls_own_settings_are_none_of_it() -> None:
    first = Wish.of("local[2]", {"spark.a": "1", "squall.webhdfs.address": "x:1"})
    assert wish_problem(Wish.of("local[2]", {"spark.a": "1"}), first) is None
    assert wish_problem(Wish.of(None, None), Wish.of("local[*]", {})) is None


def test_another_master_or_other_settings_are_told_with_both() -> None:
    problem = wish_problem(Wish.of("yarn", {"spark.a": "1"}), Wish.of("local[2]", {"spark.a": "2"}))
    assert problem is not None
    assert "with master local[2] with spark.a=2; wanted was master yarn with spark.a=1." in problem
    assert wish_problem(Wish.of("yarn", {}), Wish.of("yarn", {"spark.a": "1"})) is not None


def test_what_is_secret_is_not_told() -> None:
    wish = Wish.of(
        "sc://host:443/;token=hunter1",
        {"spark.hadoop.fs.s3a.secret.key": "hunter2", "spark.ssl.keyPassword": "hunter3"},
    )
    assert "hunter" not in str(wish)
    assert "sc://host:443/;..." in str(wish)
    assert wish.where == "sc://host:443/;token=hunter1"
