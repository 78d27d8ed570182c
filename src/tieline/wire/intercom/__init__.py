"""The intercom wire: sessions of many revisions behind one broker."""
