// LeanCloud's JavaScript package, pointed at this stack, and the shared parts of its scenarios.

import { environment, token, vendor } from "./support.mjs";

export const AV = vendor("leancloud-storage");
export const { Installation } = AV;
export const TOPIC = environment.APNS_TOPIC;

AV.init({
  appId: environment.APP_ID, appKey: environment.APP_KEY, masterKey: environment.MASTER_KEY,
  serverURL: environment.REGISTRATION_URL,
});

export const master = { useMasterKey: true };
export const install = () => new AV.Query("_Installation");
export const raw = (method, path, data) => AV.request({ method, path, data, authOptions: master });
export const pause = (milliseconds) => new Date(Date.now() + milliseconds);

export function phone(fields = {}) {
  const made = new Installation();
  made.set({
    deviceType: "ios", deviceToken: token(), apnsTopic: TOPIC, apnsEnvironment: "production",
    ...fields,
  });
  return made;
}

/// Reads the same object again.
export const again = (one) =>
  AV.Object.createWithoutData("_Installation", one.id).fetch({}, master);

export const sdk = {
  name: "LeanCloud", options: master, Query: AV.Query, GeoPoint: AV.GeoPoint,
  installations: install, users: () => new AV.Query("_User"),
  makePhone: phone, makeUser: (fields) => new AV.User(fields),
  saveAll: (list) => AV.Object.saveAll(list, master),
  save: (one) => one.save(null, master),
  again,
  blind: (id) => AV.Object.createWithoutData("_Installation", id),
  size: (query, key, size) => query.sizeEqualTo(key, size),
};
