// Parse's JavaScript package, pointed at this stack, and the shared parts of its scenarios.

import { environment, token, unique, vendor } from "./support.mjs";

export const Parse = vendor("parse", "parse/node");
export const { Installation, Query } = Parse;

Parse.initialize(environment.APP_ID, environment.APP_KEY, environment.MASTER_KEY);
Parse.serverURL = environment.REGISTRATION_URL + "/parse";

export const master = { useMasterKey: true };
export const install = () => new Query(Installation);
export const users = () => new Query(Parse.User);

/// Installations with ids of their own, as each phone makes one.
export function phone(fields = {}) {
  return new Installation({
    deviceType: "ios", deviceToken: token(), installationId: unique("i-"), ...fields,
  });
}

/// Reads the same object again, as the package would fill one of the same id from its cache.
export async function again(one) {
  return install().get(one.id, master);
}

export function blind(id) {
  const one = new Installation();
  one.id = id;
  return one;
}

Parse.Object.disableSingleInstance();

export const sdk = {
  name: "Parse", options: master, Query, GeoPoint: Parse.GeoPoint,
  installations: install, users,
  makePhone: phone, makeUser: (fields) => new Parse.User(fields),
  saveAll: (list) => Parse.Object.saveAll(list, master),
  save: (one) => one.save(null, master),
  again, blind,
  // The package has no method for it, but accepts it.
  size: (query, key, size) =>
    Query.fromJSON("_Installation", { where: { [key]: { $size: size } } }),
};
