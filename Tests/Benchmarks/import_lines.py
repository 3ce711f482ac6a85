"""Prints lines of LeanCloud's export of _Installation for `deploy/bench import`: COUNT devices, half of
them Apple's, with the fields that such an app has."""

import hashlib
import sys

count = int(sys.argv[1])
write = sys.stdout.write
for number in range(1, count + 1):
    token = hashlib.sha256(b"import %d" % number).hexdigest()
    kind = (
        f'"deviceType":"ios","deviceToken":"{token}","apnsTopic":"com.example.shop"'
        if number % 2
        else f'"deviceType":"android","vendor":"fcm","registrationId":"{token}:APA91b{token}"'
    )
    channels = '["news","half"]' if number % 4 < 2 else '["news"]'
    write(
        f'{{"objectId":"{number:024x}",{kind},"installationId":"phone-{token[:32]}",'
        f'"channels":{channels},"badge":0,"valid":true,"timeZone":"Asia/Shanghai",'
        f'"localeIdentifier":"de_CH","appVersion":"4.2.1","plan":{number % 100},'
        f'"owner":{{"__type":"Pointer","className":"_User","objectId":"user-{number // 3}"}},'
        '"createdAt":"2020-07-13T09:10:11.123Z","updatedAt":"2026-09-02T03:04:05.006Z"}\n'
    )
