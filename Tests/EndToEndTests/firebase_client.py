"""Drives remote config with the packages that people drive Firebase's with.

usage: firebase_client.py manage|server

The service is at CONFIG_URL, the project is PROJECT, and TOKEN may publish. Says nothing and exits 0
where everything is as these clients expect it at Firebase.
"""

import asyncio
import os
import sys

import google.auth.credentials
from google.oauth2.credentials import Credentials

BASE = os.environ["CONFIG_URL"]
PROJECT = os.environ["PROJECT"]
TOKEN = os.environ["TOKEN"]


def manage():
    from firebase_remote_config import client, exceptions, models

    client.FIREBASE_REMOTE_CONFIG_URL = f"{BASE}/v1/projects"
    config = client.RemoteConfigClient(Credentials(token=TOKEN), PROJECT)

    empty = config.get_remote_config()
    assert empty.template.conditions == [] and empty.etag.endswith("-0"), empty
    assert empty.template.version.versionNumber == "0"

    empty.template.conditions.append(
        models.RemoteConfigCondition(
            name="swiss",
            expression="device.country in ['CH'] && percent('seed') <= 50",
            tagColor=models.TagColor.TEAL,
        )
    )
    empty.template.parameters["welcome"] = models.RemoteConfigParameter(
        defaultValue=models.RemoteConfigParameterValue(value="Hello"),
        conditionalValues={"swiss": models.RemoteConfigParameterValue(value="Grüezi")},
        description="How people are greeted",
        valueType=models.ParameterValueType.STRING,
    )
    empty.template.parameters["untyped"] = models.RemoteConfigParameter(
        defaultValue=models.RemoteConfigParameterValue(useInAppDefault=True),
        valueType=models.ParameterValueType.BOOLEAN,
    )
    validated = config.validate_remote_config(empty)
    assert validated.etag == empty.etag + "-0", validated.etag
    assert config.get_remote_config().etag == empty.etag, "validating stores nothing"

    first = config.update_remote_config(empty)
    assert first.template.version.versionNumber == "1"
    assert first.template.version.updateType == models.RemoteConfigUpdateType.INCREMENTAL_UPDATE
    assert first.template.version.updateUser.email == f"ci@{PROJECT}"
    assert first.template.parameters["welcome"].conditionalValues["swiss"].value == "Grüezi"
    assert first.template.conditions[0].tagColor == models.TagColor.TEAL

    # A validated template is not a version.
    expect(exceptions.VersionMismatchError, config.update_remote_config, validated)
    expect(exceptions.VersionMismatchError, config.update_remote_config, empty)
    expect(exceptions.VersionMismatchError, config.validate_remote_config, empty)

    broken = config.get_remote_config()
    broken.template.conditions[0].expression = "device.colour == 'green'"
    error = expect(exceptions.ValidationError, config.validate_remote_config, broken)
    assert "swiss" in str(error), error
    error = expect(exceptions.ValidationError, config.update_remote_config, broken)

    for number in range(2, 6):
        current = config.get_remote_config()
        current.template.parameters["welcome"].defaultValue.value = f"Hello {number}"
        assert config.update_remote_config(current).template.version.versionNumber == str(number)

    page = config.list_versions(page_size=2)
    assert [version.versionNumber for version in page.versions] == ["5", "4"], page
    page = config.list_versions(page_size=2, page_token=page.nextPageToken)
    assert [version.versionNumber for version in page.versions] == ["3", "2"], page
    page = config.list_versions(page_size=2, page_token=page.nextPageToken)
    assert [version.versionNumber for version in page.versions] == ["1"], page
    assert page.nextPageToken is None
    ended = config.list_versions(end_version_number="3")
    assert [version.versionNumber for version in ended.versions] == ["3", "2", "1"], ended
    times = [version.updateTime for version in config.list_versions().versions]
    assert times == sorted(times, reverse=True)
    later = config.list_versions(start_time=times[0].replace(year=times[0].year + 1))
    assert later.versions == []

    old = config.get_remote_config(version_number="1")
    assert old.template.parameters["welcome"].defaultValue.value == "Hello"
    back = config.rollback("1")
    assert back.template.version.versionNumber == "6"
    assert back.template.version.rollbackSource == "1"
    assert back.template.version.updateType == models.RemoteConfigUpdateType.ROLLBACK
    assert back.template.parameters == old.template.parameters
    assert config.get_remote_config().etag == back.etag
    for version in ["6", "7", "0"]:
        expect(exceptions.UnexpectedError, config.rollback, version)

    stranger = client.RemoteConfigClient(Credentials(token=TOKEN), "nobody-s-project")
    expect(exceptions.UnexpectedError, stranger.get_remote_config)


class FixedToken(google.auth.credentials.Credentials):
    """An access token that is there and never expires."""

    def __init__(self):
        super().__init__()
        self.token = TOKEN

    def refresh(self, request):
        raise AssertionError("a token that is right is renewed")


def server():
    import firebase_admin
    from firebase_admin import remote_config

    class Certificate(firebase_admin.credentials.Base):
        def get_credential(self):
            return FixedToken()

    app = firebase_admin.initialize_app(Certificate(), {"projectId": PROJECT})
    template = remote_config.init_server_template(app, {"limit": "1"})
    service = firebase_admin._utils.get_app_service(
        app, "_remoteconfig", remote_config._RemoteConfigService
    )
    service._client._base_url = BASE
    asyncio.run(template.load())
    gold = template.evaluate({"randomization_id": "one", "tier": "gold"})
    other = template.evaluate({"randomization_id": "one", "tier": "silver"})
    assert gold.get_int("limit") == 100, gold.get_int("limit")
    vip = template.evaluate({"randomization_id": "one", "tier": "vip"})
    assert vip.get_int("limit") == 200, vip.get_int("limit")
    assert other.get_int("limit") == 10, other.get_int("limit")
    assert other.get_string("greeting") == "hello"
    assert other.get_boolean("everybody") is True
    assert gold.get_value_source("limit") == "remote"


def expect(kind, call, *arguments):
    try:
        call(*arguments)
    except kind as error:
        assert type(error) is kind, f"{type(error)} in place of {kind}"
        return error
    raise AssertionError(f"{call.__name__} raised no {kind.__name__}")


{"manage": manage, "server": server}[sys.argv[1]]()
