-- The made-up shop. Tables that the helpdesk changes have a unique column `key`. An action that runs again after a crash
-- finds its key there and is not done twice.

CREATE TABLE IF NOT EXISTS customers (email TEXT PRIMARY KEY, name TEXT NOT NULL);

CREATE TABLE IF NOT EXISTS orders (
  number TEXT PRIMARY KEY,
  customer TEXT NOT NULL REFERENCES customers,
  item TEXT NOT NULL,
  total TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('packed', 'shipped', 'delivered')),
  ordered_on TEXT NOT NULL,
  arrives_on TEXT NOT NULL,
  street TEXT NOT NULL,
  postcode TEXT NOT NULL,
  city TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS address_changes (
  key TEXT PRIMARY KEY, number TEXT NOT NULL REFERENCES orders, street TEXT NOT NULL, postcode TEXT NOT NULL,
  city TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS refunds (
  key TEXT PRIMARY KEY, number TEXT NOT NULL REFERENCES orders, amount TEXT NOT NULL, reason TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS cancellations (
  key TEXT PRIMARY KEY, number TEXT NOT NULL UNIQUE REFERENCES orders, amount TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS appointments (
  key TEXT PRIMARY KEY, day TEXT NOT NULL, time TEXT NOT NULL, kind TEXT NOT NULL, contact TEXT NOT NULL,
  UNIQUE (day, time)
);

CREATE TABLE IF NOT EXISTS tickets (
  number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, about TEXT NOT NULL
);
